// Models and shedding: how a model is computed, and what dropping rows costs in accuracy.
import { useEffect, useMemo } from "preact/hooks";
import { api, type ModelPicture, type QueryLine } from "../api/client";
import { Bar, Empty, Problem } from "../components/small";
import { count, percent } from "../format";
import { token } from "../state/connection";
import { usePolling } from "../state/polling";
import { hashOf } from "../state/router";

export function Models() {
  const models = usePolling((stop) => api.models(stop), 0, token.value);
  const overview = usePolling((stop) => api.overview({ limit: 500, sort: "name" }, stop), 3000, token.value);
  const shedding = overview.data.value?.queries.filter((line) => line.accuracy !== null) ?? [];
  return (
    <>
      <div class="head">
        <h1>Models &amp; shedding</h1>
      </div>
      <Problem text={models.error.value ?? overview.error.value} />
      <section class="card flush">
        <h2>Queries with a budget</h2>
        {shedding.length ? (
          <Shedding lines={shedding} />
        ) : (
          <Empty>No query may drop rows. A query with a budget keeps up under load and says what it cost.</Empty>
        )}
      </section>
      {models.data.value?.map((model) => <Model model={model} key={model.name} />)}
      {models.data.value?.length === 0 && (
        <section class="card">
          <h2>Models</h2>
          <Empty>
            No query uses a model. <code>CREATE MODEL</code> declares one: its graphs show up here.
          </Empty>
        </section>
      )}
    </>
  );
}

function Shedding({ lines }: { lines: QueryLine[] }) {
  return (
    <div class="scroll">
      <table>
        <thead>
          <tr>
            <th>Query</th>
            <th class="number">Dropped</th>
            <th class="number">Accuracy</th>
            <th />
          </tr>
        </thead>
        <tbody>
          {lines.map((line) => (
            <tr key={line.name}>
              <td class="name">
                <a href={hashOf("query", line.name)}>{line.name}</a>
              </td>
              <td class="number">{count(line.shed)}</td>
              <td class="number">{percent(line.accuracy)}</td>
              <td style={{ minWidth: "160px" }}>
                <Bar share={line.accuracy ?? 0} label={`accuracy ${percent(line.accuracy)}`} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
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
      <p class="soft small">Above, the graph that reads the window again; below, the one that keeps its values up to date.</p>
      <div class="scroll" tabIndex={0} role="region" aria-label={`Graphs of ${model.name}`}>
        <img class="picture" src={url} alt={`Graphs of the model ${model.name}`} />
      </div>
    </section>
  );
}
