"""What to drop when memory is short, and what it costs: pure logic that both engines use."""
