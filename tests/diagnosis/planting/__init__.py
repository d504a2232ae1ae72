"""Faults to plant, folders to plant them in, and the count of those that the doctor names.

python -m tests.diagnosis.planting runs the whole matrix and prints its table.
"""
