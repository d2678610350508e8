"""The lab: published experiments run again, the simulator that they use, and benchmarks.

    mill/ sched/ slice/ shed/ model/   one module per experiment: set-up, run, claims, plot
    experiment, claims, registry …     what an experiment is, and how one is found, checked, printed and drawn
    published/ results/                published figures, the rule for ours, and what runs gave
    on_engine                          mills for experiments that run on the product
    simulator/ policies/ charts/       units that a policy chooses from, played tuple by tuple in virtual time
    testbeds/                          the workloads of the published experiments
    bench/                             measurements beside other systems
    cli/                               `slicemill lab` and `slicemill bench`

A module `<family>/e<number>.py` holds one `EXPERIMENT`: `mill/e1.py` is `mill-E1`. `slicemill lab run ID`
runs it and says which claims hold here. The product imports nothing of this.
"""
