"""The OpenAPI description compared with the answers to requests that schemathesis generates from it."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance
from schemathesis.specs.openapi.schemas import OpenApiSchema

from slicemill.server.auth import Access
from slicemill.server.http.app import create_app
from slicemill.server.live_results import LiveResults
from slicemill.server.pages.stored_slices import SliceWatch
from slicemill.server.sampling import Sampler
from slicemill.server.service import MillService

ROUTES = [
    ("POST", "/v1/statements"),
    ("POST", "/v1/check"),
    ("GET", "/v1/catalog"),
    ("GET", "/v1/queries"),
    ("GET", "/v1/queries/{name}"),
    ("GET", "/v1/alerts"),
    ("GET", "/v1/queries/{name}/explain"),
    ("GET", "/v1/queries/{name}/results"),
    ("GET", "/v1/explain"),
    ("GET", "/v1/metrics"),
    ("GET", "/metrics"),
    ("GET", "/v1/support-bundle"),
    ("GET", "/health"),
    ("GET", "/v1/overview"),
    ("GET", "/v1/history"),
    ("GET", "/v1/history/{name}"),
    ("GET", "/v1/queries/{name}/line"),
    ("GET", "/v1/queries/{name}/versions"),
    ("GET", "/v1/graph"),
    ("GET", "/v1/graph/components"),
    ("POST", "/v1/preview"),
    ("GET", "/v1/words"),
    ("GET", "/v1/slices"),
    ("GET", "/v1/slices/{query}"),
    ("GET", "/v1/policies"),
    ("POST", "/v1/simulate"),
    ("GET", "/v1/models"),
    ("GET", "/v1/tokens"),
    ("POST", "/v1/tokens"),
    ("DELETE", "/v1/tokens/{name}"),
]
STREAMS = [("GET", "/v1/queries/{name}/live")]  # This route never ends its response.


@pytest.fixture
def api(service: MillService) -> OpenApiSchema:
    app = create_app(service, LiveResults(service), Sampler(service.mill), SliceWatch(service.mill), Access())
    return schemathesis.openapi.from_asgi("/openapi.json", app)


def test_every_described_route_has_a_test(api: OpenApiSchema) -> None:
    described = {(found.ok().method.upper(), found.ok().path) for found in api.get_all_operations()}
    assert described == {*ROUTES, *STREAMS}


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_every_answer_matches_its_description(api: OpenApiSchema, method: str, path: str) -> None:
    @given(case=api[path][method].as_strategy())
    @settings(
        max_examples=20,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check(case: schemathesis.Case) -> None:
        # The description of a request cannot express which texts are valid ESL.
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    check()
