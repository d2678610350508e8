"""HTTP routes of the web console for models."""

from __future__ import annotations

from fastapi import FastAPI
from pydantic import BaseModel

from slicemill.extensions.models.definition import ModelDefinition
from slicemill.extensions.models.drawing import model_svg
from slicemill.extensions.models.explain import uses_of
from slicemill.server.http.console_routes import REFUSED, in_thread
from slicemill.server.http.protection import CurrentSession
from slicemill.server.service import MillService


class ModelPicture(BaseModel):
    """Model with its drawing: how the window is recomputed, and how results are updated incrementally."""

    name: str
    text: str
    svg: str


def add_routes(app: FastAPI, service: MillService) -> None:
    @app.get("/v1/models", responses=REFUSED, tags=["console"])
    async def models(session: CurrentSession) -> list[ModelPicture]:
        """Return the declared models, each with a drawing of its computation."""

        def read() -> list[ModelPicture]:
            catalog = service.mill.catalog
            return [
                ModelPicture(
                    name=model.name, text=model.model.text, svg=model_svg(model.name, model.model, uses[0])
                )
                for model in catalog.callables.values()
                if isinstance(model, ModelDefinition) and session.principal.may_name(model.name)
                if (uses := uses_of(model.name, catalog))
            ]

        return await in_thread(read)
