"""Hugging Face: checkpoints in, text out. There is no folder of models here: transformers has them.

The public functions are loaded by the facade when they are used, so that a folder can be looked at
(``checkpoint``) before anything heavy is imported.
"""
