"""Numerics that two frontends share: functions of arrays, without a word of either."""
