// Alerts: what is watched, whom it tells, and what fires now.
import { useSignal } from "@preact/signals";
import { api, type AlertEntry } from "../api/client";
import { count } from "../format";
import { token } from "../state/connection";
import { usePolling } from "../state/polling";
import { hashOf } from "../state/router";
import { alertTemplate, quoted } from "../state/statements";
import { Empty, Name, Problem, Scroll } from "./small";

const TONES: Record<string, string> = { firing: "bad", pending: "warn", ok: "good" };

/** All alerts as a table. */
export function Alerts() {
  const alerts = usePolling((stop) => api.alerts(stop), 2000, token.value);
  const problem = useSignal<string | null>(null);
  const drop = async (name: string): Promise<void> => {
    try {
      await api.run(`DROP ALERT ${quoted(name)}`);
      problem.value = null;
      alerts.again();
    } catch (error) {
      problem.value = (error as Error).message;
    }
  };
  return (
    <section class="card flush">
      <div class="row pad">
        <h2>Alerts</h2>
        <span class="space" />
        <a class="button" href={hashOf("editor", "", { write: alertTemplate("a_query") })}>
          New alert
        </a>
      </div>
      <Problem text={problem.value ?? alerts.error.value} />
      {alerts.data.value?.length ? (
        <Scroll label="Alerts">
          <table>
            <thead>
              <tr>
                <th>Alert</th>
                <th>State</th>
                <th>On</th>
                <th>When</th>
                <th class="number">Told</th>
                <th class="number">Waiting</th>
                <th>Webhook</th>
                <th class="number">Drop</th>
              </tr>
            </thead>
            <tbody>
              {alerts.data.value.map((alert) => (
                <Line alert={alert} key={alert.name} onDrop={() => drop(alert.name)} />
              ))}
            </tbody>
          </table>
        </Scroll>
      ) : (
        <Empty>No alert is declared. An alert sends result rows, or a message when a metric exceeds its limit, to a webhook.</Empty>
      )}
    </section>
  );
}

function Line({ alert, onDrop }: { alert: AlertEntry; onDrop: () => void }) {
  return (
    <tr>
      <td class="name">
        <Name of={alert.name} />
      </td>
      <td>
        <span class={`badge ${TONES[alert.state] ?? ""}`}>{alert.state}</span>
        {alert.since && <div class="small soft">since {new Date(alert.since).toLocaleTimeString()}</div>}
        {alert.firing.length > 0 && <div class="small">{alert.firing.join(", ")}</div>}
      </td>
      <td>{alert.on}</td>
      <td class="mono">{alert.condition ?? "new rows"}</td>
      <td class="number">{count(alert.sent)}</td>
      <td class="number">{count(alert.waiting)}</td>
      <td class="small">
        {alert.webhook}
        {alert.error && <div class="bad">{alert.error}</div>}
      </td>
      <td class="number">
        <button type="button" class="danger" onClick={onDrop} aria-label={`Drop alert ${alert.name}`}>
          Drop
        </button>
      </td>
    </tr>
  );
}

/** What fires now, as a notice that leads to the alerts. */
export function FiringAlerts() {
  const alerts = usePolling((stop) => api.alerts(stop), 5000, token.value);
  const firing = alerts.data.value?.filter((alert) => alert.state === "firing") ?? [];
  if (!firing.length) return null;
  return (
    <div class="notice bad" role="status">
      {firing.length === 1 ? "An alert is firing" : `${count(firing.length)} alerts are firing`}:{" "}
      {firing.map((alert) => `${alert.name} (${alert.firing.join(", ") || alert.on})`).join("; ")}.{" "}
      <a href={hashOf("errors")}>See alerts</a>
    </div>
  );
}
