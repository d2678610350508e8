"""Compiler of models: generates the code of CREATE MODEL formulas for compiled aggregate loops."""
