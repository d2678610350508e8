"""The lab: reproductions of published experiments, their simulator, and benchmarks.

    mill/ sched/ slice/ shed/ model/   one module per experiment: set-up, run, claims, plot
    experiment, claims, registry …     definition of an experiment; lookup, check, print and plot
    published/ results/                published figures, the comparison rule, and stored results
    on_engine                          mills for experiments that run on the product
    simulator/ policies/ charts/       tuple-by-tuple simulation of scheduling policies in virtual time
    testbeds/                          workloads of the published experiments
    bench/                             comparisons with other systems
    cli/                               `slicemill lab` and `slicemill bench`

A module `<family>/e<number>.py` holds one `EXPERIMENT`: `mill/e1.py` is `mill-E1`. `slicemill lab run ID`
runs the experiment and reports which claims hold. The product imports nothing from the lab.
"""
