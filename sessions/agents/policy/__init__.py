"""What an agent may do now: limits and the policies of endpoint, bundle and token."""
