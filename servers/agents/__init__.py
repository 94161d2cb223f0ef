"""What agents may do and how they get in: tokens, policies, OAuth clients and grants, bundles as files, configurations
to paste into clients."""
