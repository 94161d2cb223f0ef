"""Tests that run in a network namespace (namespace.py): every address leads to this machine, and the test answers
DNS. `../test_own_network.py` starts them."""
