"""Background jobs: work that no page waits for. A row requests it, a Celery worker runs it, pages show it"""
