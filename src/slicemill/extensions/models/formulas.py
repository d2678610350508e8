"""Formulas of the predefined models (C16), without importing the model compiler."""

from __future__ import annotations

# Formula of each predefined model, with the parameter x, or with x and y
CATALOGUE: dict[str, str] = {
    "count": "count()",
    "sum": "sum(x)",
    "mean": "mean(x)",
    "variance": "variance(x)",
    "var_pop": "var_pop(x)",
    "stddev": "stddev(x)",
    "sum_of_squares": "sum(x^2)",
    "l1_norm": "norm(x, 1)",
    "l2_norm": "norm(x, 2)",
    "l3_norm": "norm(x, 3)",
    "l_infinity_norm": "max(abs(x))",
    "geometric_mean": "exp(sum(log(x))/n)",
    "harmonic_mean": "n/sum(1/x)",
    "product": "prod(x)",
    "max": "max(x)",
    "min": "min(x)",
    "range": "max(x) - min(x)",
    "median": "median(x)",
    "skewness": "let m = mean(x) in sqrt(n)*sum((x - m)^3)/nonnegative(sum((x - m)^2))^1.5",
    "kurtosis": "let m = mean(x) in n*sum((x - m)^4)/sum((x - m)^2)^2",
    "ramp_average": "2*sum(i*x)/(n*(n + 1))",
    "dot": "sum(x*y)",
    "covariance": "covariance(x, y)",
    "correlation": "correlation(x, y)",
    "slope": "slope(x, y)",
    "intercept": "intercept(x, y)",
    "r2": "r2(x, y)",
    "weighted_mean": "sum(x*y)/sum(y)",
    "cosine": "sum(x*y)/(norm(x, 2)*norm(y, 2))",
    "distance": "norm(x - y, 2)",
}
