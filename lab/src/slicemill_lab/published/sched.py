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
        "SRPT deviates at a load of 0.7, but not at 0.97. The difference between HNR and SRPT depends on "
        "the backlog: with a small backlog, both run the tuples that have just arrived. The packet trace "
        "is burstier over long times than our ON/OFF arrivals. The trace was not available."
    ),
    "sched-E9": (
        "We tried loads of 0.97 and 0.99 instead of 0.95, because no load is published (BSD 47 to 48 % "
        "below HR, 15 to 17 % below HNR over three seeds). We also tried equal costs, as in the published "
        "text. With equal costs, HR and HNR are the same policy, so the two published figures cannot both "
        "be from equal costs."
    ),
    "sched-E10": (
        "We tried loads of 0.97 and 0.99 instead of 0.95 (62 to 64 % for HR, 51 to 54 % for HNR if all "
        "selectivities are 0.1; 5 to 6 % if selectivities go up to 1). The published plot shows the "
        "policy relative to its oracle. If an improvement of 80 % is such a ratio, 1.8, it is 44 % below, "
        "and our figure is between both readings. The publication does not state how an oracle treats "
        "several pending events (A16)."
    ),
    "sched-E12": (
        "RR depends on the length of its turn. With equal time slices, which sched-E1 needs to match the "
        "publication, RR is 4 to 8 times BSD. With one tuple in each turn, RR was 12, 11 and 19 times BSD "
        "over three seeds, about as published, and FCFS the same. We also tried windows with ten times as "
        "many tuples, because their number is not published: HNR 1.5 times BSD, RR 7, FCFS 9."
    ),
    "sched-E15": (
        "Chain's slowdown depends on the backlog of the single run. Single runs are between 1.6 and 4.1 "
        "times the slowdown of the policy for this objective. A run has 3 000 tuples here, and hundreds "
        "of thousands in the trace."
    ),
    "sched-E16": (
        "The charge for decisions causes the deviation. Without a charge, 12 clusters cost 2 to 4 % over "
        "BSD. With a tenth of our charge they are 4 to 9 % above BSD, as published, with half of it 11 to "
        "39 %, and with all of it 20 to 114 %. At a load of 0.9, which decisions raise to 0.94, they are "
        "21 to 59 % above (five seeds each). Each tuple has twelve decisions, and each decision examines "
        "about ten pairs and bounds at two operations. This raises a load of 0.95 to 0.99, where the norm "
        "is steep. With this charge, fewer clusters are best. The published text charges each priority "
        "and each comparison with the cheapest operator, as we do. It does not state which operations of "
        "Fagin's algorithm it counts, nor whether the load includes them. The 10 % of the uniform "
        "clusters is for a number of clusters that is not published."
    ),
    "sched-E17": (
        "A naive decision examines 500 queries with two operations each. This is 1 000 times the cheapest "
        "operator, but a query takes 12 times the cheapest operator. So the system is overloaded 80 "
        "times, and the norm grows with the length of the run. We tried runs of 2 to 1 000 tuples, and "
        "none is below 400 times BSD. A twentieth of the charge gives 21 to 300 times. So no length of a "
        "run and no single charge gives both 65.7 times at first and 5 % at last. See sched-E16 for the "
        "latter."
    ),
    "sched-E18": (
        "PDT is best in each seed, but by less than published. The load is not published. At 0.7, the six "
        "figures are within 2 points of those at 0.95. The relation between costs and selectivities of a "
        "shared select and of the operators after it is not published either. Here they are drawn "
        "independently. If Sum runs all of its queries at once (A5), it is far worse than Max, which "
        "contradicts the publication."
    ),
    "sched-E19": (
        "Our own rule caused most of the gap. The treatment of the estimate of a query without recent "
        "measurements is not published (A14). In our rule, the estimate returned to its initial value, "
        "and adaptive HR was 24 to 52 % below static HR for a deviation of 5 (three seeds). Under the "
        "rule as printed, adaptive HR is 59 to 89 % below. The rest of the gap depends on the treatment "
        "of values above 100 (A18) and on the number of queries. Our values begin again at 1, so data "
        "with a deviation of 25 is nearly uniform. If values are cut off at 100 and there are 100 "
        "queries, HR is 76 and 84 % and HNR 75 and 78 % below for a deviation of 5, as published (two "
        "seeds). For 25, the figures are then 55 to 66 %, more than published, and 14 to 42 % with 25 "
        "queries. Other changes have less effect: 100 queries alone (70 and 72 %), with Poisson arrivals "
        "(64 and 71 %), one cost class (57 and 74 %), another beginning of the data (40 and 62 %). "
        "Predicates with one end gain 2 to 10 %. If the load is above 1 for long parts of the data, "
        "queries without measurements stay misjudged. Single runs of 25 queries are then between 96 % "
        "below and 28 times above."
    ),
    "sched-E20": (
        "For HR, the figure is reproduced on average, but single seeds have 10 tuples. For BSD, longer "
        "windows are better here. If a query emits nothing in a window, its estimate moves towards 0, and "
        "BSD then starves the query (see sched-E19). A long window is seldom empty."
    ),
    "sched-E21": (
        "HR's best weight is 0.1 to 0.25 for four of five seeds, and 1 for the other seed. For BSD, slow "
        "adaptation is best, for the reason given in sched-E20."
    ),
    "sched-E22": (
        "The published levels fit a higher load than 0.95. At 1.02, staleness is 15 % under HR and 10 % "
        "under FAS, 35 % less, as published. If each decision costs as much as the cheapest operator, "
        "staleness is 41 % less at 0.95 (A22: the calendar queue was charged). We also tried ties by "
        "number instead of age (21 % less), equal costs (24 %), a skew of 1 (32 %), and 250 queries (24 "
        "%). At a load of 0.1 only bursts wait, and none of these changes affects the 9 to 11 %."
    ),
    "sched-E23": (
        "FAS delays queries with many pending tuples, and delays them more at a higher load: FAS is 62 % "
        "above HR at 0.95 with 250 queries, 18 to 23 % at 0.1, and 285 % at 0.99 over three seeds. None "
        "of these loads gives both the published staleness of sched-E22 and these 23 %."
    ),
    "sched-E25": "See sched-E22 and sched-E23: the knob's first quarter costs and gains less here.",
    "sched-E26": (
        "See sched-E22: the gap between FAS and HR grows with the load, which charged decisions add to."
    ),
    "sched-E27": (
        "See sched-E22 for the levels. Between five and eight bursty streams, the gain is the same within "
        "the spread of the seeds. With ten streams it is less, as published."
    ),
}
