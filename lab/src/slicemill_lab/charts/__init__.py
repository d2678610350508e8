"""Progress charts and derived figures of paths: the closed forms of scheduling (M2-M9, P2).

    Path of Stages --chart--> Pieces --partition--> Segments         (charts, partition, forks)
    Paths --cut--> Tasks                                             (tasks, segments; sharing, composites)

Times have the task of the stages' times.
"""
