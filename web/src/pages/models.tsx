// Models and shedding: how a model is computed, and what dropping rows costs in accuracy.
import { useEffect, useMemo } from "preact/hooks";
import { api, type ModelPicture, type QueryLine } from "../api/client";
import { Chart } from "../components/chart";
import { Bar, Empty, Name, Problem, Scroll } from "../components/small";
import { count, percent, span } from "../format";
import { token } from "../state/connection";
import { usePolling } from "../state/polling";
import { hashOf } from "../state/router";

export function Models() {
  const models = usePolling((stop) => api.models(stop), 0, token.value);
  const overview = usePolling((stop) => api.overview({ limit: 500, sort: "name" }, stop), 3000, token.value);
  const shedding = overview.data.value?.queries.filter((line) => line.budget !== null || line.accuracy !== null) ?? [];
  return (
    <>
      <div class="head">
        <h1>Models &amp; shedding</h1>
      </div>
      <Problem text={models.error.value ?? overview.error.value} />
      <section class="card flush">
        <h2>Queries with a load budget</h2>
        {shedding.length ? (
          <Shedding lines={shedding} />
        ) : (
          <Empty>No query has a load budget. Under overload, a query with a budget drops rows, and this page shows the lost accuracy.</Empty>
        )}
      </section>
      {shedding.slice(0, 6).map((line) => (
        <Accuracy query={line.name} key={line.name} />
      ))}
      {models.data.value?.map((model) => <Model model={model} key={model.name} />)}
      {models.data.value?.length === 0 && (
        <section class="card">
          <h2>Models</h2>
          <Empty>
            No query uses a model. After <code>CREATE MODEL</code> its graphs appear here.
          </Empty>
        </section>
      )}
    </>
  );
}

/** Accuracy against budget: what a query may give up, what it gave, and what that cost. */
function Shedding({ lines }: { lines: QueryLine[] }) {
  return (
    <Scroll label="Queries with a load budget">
      <table>
        <thead>
          <tr>
            <th>Query</th>
            <th>Budget</th>
            <th class="number">Lag now</th>
            <th class="number">Dropped</th>
            <th class="number">Share of rows</th>
            <th colSpan={2}>Accuracy</th>
          </tr>
        </thead>
        <tbody>
          {lines.map((line) => (
            <tr key={line.name}>
              <td class="name">
                <a href={hashOf("query", line.name)}>
                  <Name of={line.name} />
                </a>
              </td>
              <td>{line.budget ?? "–"}</td>
              <td class="number">{line.lag_s === null ? "–" : span(line.lag_s)}</td>
              <td class="number">{count(line.shed)}</td>
              <td class="number">{percent(line.shed_share)}</td>
              <td>{percent(line.accuracy)}</td>
              <td style={{ minWidth: "160px", verticalAlign: "middle" }}>
                <Bar share={line.accuracy ?? 0} label={`accuracy ${percent(line.accuracy)}`} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function Accuracy({ query }: { query: string }) {
  const { data } = usePolling((stop) => api.history(query, stop), 5000, query + token.value);
  const found = data.value?.columns;
  const lines = useMemo(
    () => ({
      accuracy: [{ name: "accuracy", colour: "accent" as const, values: found?.accuracy ?? [] }],
      shed: [{ name: "dropped", colour: "bad" as const, values: found?.shed ?? [] }],
    }),
    [found],
  );
  if (!found || (found.at?.length ?? 0) < 2) return null;
  return (
    <section class="card">
      <h2>{query}</h2>
      <div class="charts">
        <Chart title="Accuracy" at={found.at ?? []} lines={lines.accuracy} shown={percent} />
        <Chart title="Rows dropped so far" at={found.at ?? []} lines={lines.shed} shown={count} />
      </div>
    </section>
  );
}

function Model({ model }: { model: ModelPicture }) {
  const url = useMemo(() => URL.createObjectURL(new Blob([model.svg], { type: "image/svg+xml" })), [model.svg]);
  useEffect(() => () => URL.revokeObjectURL(url), [url]);
  return (
    <section class="card">
      <h2>
        {model.name} <span class="mono soft">{model.text}</span>
      </h2>
      <p class="soft small">Above: the graph that recomputes each window. Below: the graph that updates its values incrementally.</p>
      <Scroll label={`Graphs of ${model.name}`}>
        <img class="picture" src={url} alt={`Graphs of the model ${model.name}`} />
      </Scroll>
    </section>
  );
}
