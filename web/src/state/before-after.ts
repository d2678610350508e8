// Before and after a change of policy: the mean of a figure under each.
export interface PolicySpan {
  policy: string;
  from: number;
  to: number;
  mean: number | null;
  samples: number;
}

/** The last policies, each with the mean of what was sampled while it decided. */
export function byPolicy(
  at: (number | null)[],
  values: (number | null)[],
  policies: { at_s: number; policy: string }[],
  most = 3,
): PolicySpan[] {
  return policies
    .map(({ at_s, policy }, index) => {
      const to = policies[index + 1]?.at_s ?? Infinity;
      const seen = values.filter((value, place) => {
        const when = at[place];
        return value !== null && when !== null && when !== undefined && when > at_s && when <= to;
      }) as number[];
      const mean = seen.length ? seen.reduce((sum, value) => sum + value, 0) / seen.length : null;
      return { policy, from: at_s, to, mean, samples: seen.length };
    })
    .slice(-most);
}
