"""Seeded schedules: random programs over the rooms, under a scheduler that a seed decides."""
