"""Registration of the model extension: statement, aggregates, operator, values and commands.

A model is an aggregate function declared by CREATE MODEL as a formula over a window. The registered parts are
the statement CREATE MODEL, models as aggregate functions, the operator that several queries share, the
current values for the console, and the command `slicemill calibrate`.
"""

from __future__ import annotations

from slicemill.extension import (
    AggregateProvider,
    CommandHook,
    Extension,
    LiveValues,
    OperatorHook,
    RewriteHook,
    StatementHook,
)

_MODELS = "slicemill.extensions.models"

PROVIDER = AggregateProvider(
    kind="MODEL",
    accumulator=f"{_MODELS}.calls:ModelAccumulator",
    names=f"{_MODELS}.definition:PREDEFINED",
    predefined=f"{_MODELS}.definition:predefined",
    check=f"{_MODELS}.windows:check_windows",
    check_table=f"{_MODELS}.windows:check_table",
    code=f"{_MODELS}.compiler.code:ModelCode",
    imports=(f"from {_MODELS} import numerics as heaps", f"from {_MODELS} import numerics as dd"),
    finite=True,
    joint=f"{_MODELS}.calls:joint_call",
)

EXTENSION = Extension(
    statements=(
        StatementHook(
            kind="MODEL",
            plural="MODELS",
            parse=f"{_MODELS}.grammar:create_model",
            bind=f"{_MODELS}.binder:bind_model",
            called=True,
            replaceable=True,
            explain=f"{_MODELS}.explain:explained",
        ),
    ),
    aggregates=(PROVIDER,),
    operators=(
        OperatorHook(
            kinds=f"{_MODELS}.spec:KINDS",
            rewrites=(RewriteHook(rule=f"{_MODELS}.sharing:share_models", before="share_over"),),
            states=(f"{_MODELS}.state_codecs",),
        ),
    ),
    live_values=(LiveValues(name="models", read=f"{_MODELS}.live_values:model_values_of"),),
    routes=(f"{_MODELS}.console:add_routes",),
    commands=(
        CommandHook(
            name="calibrate",
            function=f"{_MODELS}.calibrate:calibrate",
            epilog="Example: slicemill calibrate",
        ),
    ),
)
