"""Resource subscriptions: settings, versions kept, comparison, retention, webhooks."""
