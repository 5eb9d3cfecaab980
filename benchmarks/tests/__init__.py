"""Measure how long the tests take, group by group, and where that time goes."""
