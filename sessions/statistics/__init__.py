"""Call statistics over time: roll-ups by minute, hour and day, counted by a background job, read by charts"""
