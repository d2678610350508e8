"""Random sets of joins on the engine, however they are placed, against SQL over the finished input."""
