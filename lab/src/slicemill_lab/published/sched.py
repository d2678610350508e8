"""Published figures of the scheduling experiments (E0-E28), and reasons for deviations."""

from __future__ import annotations

from collections.abc import Mapping

from slicemill_lab.published.figure import Printed, between, change, number, ratio, up_to

FIGURES: Mapping[str, Mapping[str, Printed]] = {
    "sched-E0": {
        "HR: mean response": number(12.25),
        "HR: mean slowdown": number(3.875),
        "HNR: mean response": number(13.0),
        "HNR: mean slowdown": number(2.9),
    },
    "sched-E1": {
        "load 0.7: HNR against RR": change(-74),
        "load 0.7: HNR against SRPT": change(-51),
        "load 0.7: HNR against HR": change(-18),
        "load 0.97: HNR against RR": change(-75),
        "load 0.97: HNR against SRPT": change(-53),
        "load 0.97: HNR against HR": change(-20),
    },
    "sched-E2": {
        "load 0.7: HNR against HR": change(4),
        "load 0.97: HNR against HR": change(7),
        "load 0.97: FCFS over HR": ratio(6.3),
    },
    "sched-E3": {"load 0.97: FCFS against HR": change(-75)},
    "sched-E4": {"load 0.97: LSF against HNR": change(-80)},
    "sched-E5": {
        "greatest slowdown: BSD against HNR": change(-44),
        "mean slowdown: BSD against LSF": change(-80),
    },
    "sched-E6": {"BSD against LSF": up_to(-57), "BSD against HNR": up_to(-24)},
    "sched-E7": {"BRT against FCFS": up_to(-51), "BRT against HR": up_to(-23)},
    "sched-E9": {
        "selectivities of 0.1: BSD against HR": change(0),
        "selectivities of 0.1: BSD against HNR": change(0),
        "selectivities up to 0.5: BSD against HR": change(-44),
        "selectivities up to 0.5: BSD against HNR": change(-19),
        "selectivities up to 1: BSD against HR": change(-61),
        "selectivities up to 1: BSD against HNR": change(-27),
    },
    "sched-E10": {
        "selectivities of 0.1: the better oracle against its policy": up_to(-80),
        "selectivities up to 1: HR-O against HR": change(-12),
        "selectivities up to 1: HNR-O against HNR": change(-12),
    },
    "sched-E12": {
        "BSD against HNR": up_to(-14),
        "load 0.9: RR over BSD": ratio(17),
        "load 0.9: FCFS over BSD": ratio(15),
    },
    "sched-E14": {"HNR against HR": up_to(-22), "BSD against HNR": up_to(-13)},
    "sched-E15": {
        "mean slowdown: Chain over HNR": ratio(3),
        "l2 slowdown: Chain over BSD": ratio(2.2),
        "memory: HNR over Chain": ratio(2),
        "memory: BSD over Chain": ratio(1.85),
    },
    "sched-E16": {
        "the best number of logarithmic clusters": number(12),
        "12 logarithmic clusters against BSD without overhead": change(5),
    },
    "sched-E17": {
        "naive over BSD without overhead": ratio(65.7),
        "clustered processing against BSD without overhead": change(5),
    },
    "sched-E18": {
        "HR, mean response: PDT against Max": change(-21),
        "HR, mean response: PDT against Sum": change(-12),
        "HNR, mean slowdown: PDT against Max": change(-24),
        "HNR, mean slowdown: PDT against Sum": change(-18),
        "BSD, l2 slowdown: PDT against Max": change(-10),
        "BSD, l2 slowdown: PDT against Sum": change(-8),
    },
    "sched-E19": {
        "deviation 5: adaptive against static HR": change(-90),
        "deviation 5: adaptive against static HNR": change(-85),
        "deviation 25: adaptive against static HR": change(-26),
        "deviation 25: adaptive against static HNR": change(-24),
    },
    "sched-E20": {
        "HR: the best window": between(50, 150, " tuples"),
        "BSD: the best window": between(50, 150, " tuples"),
    },
    "sched-E21": {"HR: the best weight": between(0.1, 0.25), "BSD: the best weight": between(0.1, 0.25)},
    "sched-E22": {
        "load 0.1: FAS against HR": change(-30),
        "load 0.95: FAS against HR": change(-40),
        "load 0.95: staleness under HR": number(16, " %"),
        "load 0.95: staleness under FAS": number(10, " %"),
    },
    "sched-E23": {"load 0.95: FAS against HR": change(23)},
    "sched-E25": {
        "β 0.25, staleness: FAS against HR": change(-20),
        "β 0.25, response: FAS against HR": change(14),
    },
    "sched-E26": {"no skew: FAS against HR": change(-39), "skewed: FAS against HR": up_to(-55)},
    "sched-E27": {
        "five bursty streams: FAS against HR": change(-40),
        "ten bursty streams: FAS against HR": change(-22),
        "bursty streams at which FAS gains most": number(5),
    },
}

WHY: Mapping[str, str] = {
    "sched-E1": (
        "SRPT at a load of 0.7 is off, at 0.97 it is not. How far HNR is below SRPT depends on the "
        "backlog: with less waiting both run what has just come. The packet trace is burstier over long "
        "times than our ON/OFF arrivals; it was not at hand."
    ),
    "sched-E9": (
        "Tried: loads of 0.97 and 0.99 in place of 0.95, as none is published (BSD 47 to 48 % below HR, "
        "15 to 17 % below HNR over three seeds); equal costs, as the text has it, under which HR and HNR "
        "are one policy, so that its own two figures cannot both come from there."
    ),
    "sched-E10": (
        "Tried: loads of 0.97 and 0.99 in place of 0.95 (62 to 64 % for HR, 51 to 54 % for HNR where all "
        "selectivities are 0.1; 5 to 6 % where they go up to 1). The published plot shows the policy over "
        "its oracle; an improvement of 80 % read as such a ratio, 1.8, is 44 % below, and ours lies "
        "between both readings. What an oracle does with several pending events is not published (A16)."
    ),
    "sched-E12": (
        "RR depends on its turn. With equal time slices, which sched-E1 needs to come out as published, "
        "it is 4 to 8 times BSD; with a tuple in each turn it was 12, 11 and 19 times over three seeds, "
        "about what was published, and FCFS the same. Tried too: windows that hold ten times as many "
        "tuples, as their number is not published: HNR 1.5 times BSD, RR 7, FCFS 9."
    ),
    "sched-E15": (
        "Chain's slowdown depends on the backlog that a run happens to have: single runs lie between 1.6 "
        "and 4.1 times that of the policy made for the objective. A run has 3 000 tuples here and "
        "hundreds of thousands in the trace."
    ),
    "sched-E16": (
        "It is what decisions are charged. Free ones cost 12 clusters 2 to 4 % over BSD. With a tenth of "
        "our charge they are 4 to 9 % above it, as published, with half of it 11 to 39 %, with all of it 20 "
        "to 114 %; at a load of 0.9, so that deciding takes it to 0.94, 21 to 59 % (five seeds each): "
        "twelve decisions for a tuple, each of which looks at some ten pairs and bounds at two "
        "operations, take a load of 0.95 to 0.99, where the norm is steep. With that, fewer clusters are "
        "best. The published text charges each priority and each comparison with the cheapest operator, "
        "as we do; it does not say which of Fagin's it counts, nor whether the load has them in it. The "
        "uniform clusters' 10 % is for a number of clusters that is not published."
    ),
    "sched-E17": (
        "A naive decision looks at 500 queries, at two operations each: 1 000 times the cheapest operator "
        "where a query takes 12, so that the system is overloaded 80 times, and the norm grows with the "
        "run. Tried: runs of 2 to 1 000 tuples, of which none is below 400 times BSD; a twentieth of the "
        "charge gives 21 to 300 times. So no length of a run and no one charge gives both 65.7 times at "
        "first and 5 % at last; see sched-E16 for the latter."
    ),
    "sched-E18": (
        "PDT is best in each seed, by less than published. The load is not published: at 0.7 the six "
        "figures are within 2 points of those at 0.95. Nor is it published how costs and selectivities of "
        "a shared select and of what is behind it belong together; here they are drawn independently. If "
        "Sum runs all of its queries at once (A5), it is far worse than Max, against what was published."
    ),
    "sched-E19": (
        "Most of the gap was a rule of our own. What becomes of the estimate of a query that nobody has "
        "looked at for long is not published (A14); we let it go back to what was believed at first, and HR "
        "that adapts was 24 to 52 % below static HR for a deviation of 5 (three seeds). Under the rule as "
        "it is printed it is 59 to 89 % below. The rest is what becomes of values above 100 (A18) and the "
        "number of queries. Ours begin again at 1, so that data with a deviation of 25 is nearly uniform. "
        "Cut off at 100, they leave HR 76 and 84 % and HNR 75 and 78 % below for a deviation of 5, as "
        "published, if there are 100 queries (two seeds); for 25 it is 55 to 66 % then, more than "
        "published, and 14 to 42 % with 25 queries. Of less effect: 100 queries alone (70 and 72 %), with "
        "Poisson arrivals (64 and 71 %), one cost class (57 and 74 %), another beginning of the data (40 "
        "and 62 %); predicates with one end gain 2 to 10 %. Where the load is above 1 for long stretches of "
        "the data, who is not looked at stays misjudged: single runs of 25 queries then go from 96 % below "
        "to 28 times above."
    ),
    "sched-E20": (
        "For HR it is so on average, with single seeds at 10 tuples. For BSD longer is better here: a window "
        "in which a query passed nothing takes its estimate towards 0, with which BSD starves it (see "
        "sched-E19), and a long window is seldom empty."
    ),
    "sched-E21": (
        "HR's best weight is 0.1 to 0.25 for four of five seeds, and 1 for the other. For BSD slow is best, "
        "for the reason that sched-E20 has."
    ),
    "sched-E22": (
        "The published levels belong to a higher load than 0.95: at 1.02 staleness is 15 % under HR and "
        "10 % under FAS, 35 % less, as published; with decisions charged as dear as the cheapest operator "
        "it is 41 % less at 0.95 (A22: the calendar queue was charged). Tried too: ties by number in "
        "place of age (21 % less), equal costs (24 %), a skew of 1 (32 %), 250 queries (24 %). At a load "
        "of 0.1 only bursts wait, and none of these changes the 9 to 11 %."
    ),
    "sched-E23": (
        "FAS lets queries with many pending tuples wait, the more so the higher the load: 62 % above HR "
        "at 0.95 with 250 queries, 18 to 23 % at 0.1, 285 % at 0.99 over three seeds. None of these loads "
        "gives both the published staleness of sched-E22 and these 23 %."
    ),
    "sched-E25": "See sched-E22 and sched-E23: the knob's first quarter costs and gains less here.",
    "sched-E26": (
        "See sched-E22: the gap between FAS and HR grows with the load, which charged decisions add to."
    ),
    "sched-E27": (
        "See sched-E22 for the levels. Between five and eight bursty streams the gain is the same within the "
        "spread of the seeds; with ten it is less, as published."
    ),
}
