"""People: permissions and groups, invitations, sign-ins, disabling, handing over. No one gives more than they have"""
