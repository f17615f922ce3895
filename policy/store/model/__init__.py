"""What goes into the store and comes out of it: plain immutable data, one file for each topic."""
