"""Registration of the statement CREATE CLASSIFIER and of the operator that runs classifiers."""

from __future__ import annotations

from slicemill.extension import Extension, OperatorHook, StatementHook

_CLASSIFY = "slicemill.extensions.classify"

EXTENSION = Extension(
    statements=(
        StatementHook(
            kind="CLASSIFIER",
            plural="CLASSIFIERS",
            parse=f"{_CLASSIFY}.grammar:create_classifier",
            bind=f"{_CLASSIFY}.binder:bind_classifier",
        ),
    ),
    operators=(OperatorHook(kinds=f"{_CLASSIFY}.spec:KINDS"),),
)
