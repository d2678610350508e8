"""What one member gets of a shared operator."""
