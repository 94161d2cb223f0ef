"""Tests that run in a network of their own (namespace.py): every address of the world is this machine, and names are
answered by the test. `../test_own_network.py` starts them."""
