"""Expressions that `test_values_against_spark` compares, with their columns and rows.

Expressions are separated by semicolons; each is valid in ESL and in Spark SQL.
"""

from __future__ import annotations

import math
import random
from decimal import Decimal

from slicemill import types as t
from slicemill.types import Column, Kind, Schema

SCHEMA = Schema(
    (
        *(Column(name, t.INT) for name in ("i", "j")),
        *(Column(name, t.BIGINT) for name in ("l", "k")),
        *(Column(name, t.DOUBLE) for name in ("d", "e")),
        Column("m", t.decimal(10, 2)),
        Column("o", t.decimal(7, 0)),
        *(Column(name, t.decimal(38, 18)) for name in ("n", "q")),
        *(Column(name, t.VARCHAR) for name in ("s", "u", "w")),
        *(Column(name, t.BOOLEAN) for name in ("b", "c")),
        *(Column(name, t.TIMESTAMP) for name in ("ts", "tu")),
        *(Column(name, t.DATE) for name in ("dt", "du")),
        *(Column(name, t.INTERVAL) for name in ("iv", "jv")),
        Column("mo", t.MONTHS),
    )
)
ROWS = 80

CASES = """
array(i, j); array(i, d, l); array(s, u, 'x'); array(m, l); element_at(array(ts, dt), 1); size(array(b))
array_size(array(l)); cardinality(array(i, j)); array_contains(array(i, j, 1), 1)
array_contains(array(d, e), d)
array_join(array(s, u, w), '/'); element_at(array(i, j), 2); element_at(array(i, j), i % 4)
try_element_at(array(s, u), -1); try_element_at(array(i), 2); split(s, 'a'); split(s, '[ab]'); split(s, '')
split(s, 'b', 2); split(u, '.', 3); size(split(s, 'a|b', 0)); split(w, '-')
i + j; i - j; i * j; i / j; i % j; i div j; i & j; i | j; i ^ j; ~i; -i; +i; i + l; l - i; l * k; l + k; l / k
l % k; l div k; l & k; l | i; l ^ k; ~l; -l; d + e; d - e; d * e; d / e; d % e; -d; i + d; l * d; d - l
m + m; m - o; m * m; m * o; m / o; o / m; m % o; m div o; n + q; n - q; n * q; n / q; n % q; m + n
n * m; q / m; i + m; l * m; m / i; n / i; l % m; m + d; d / n; -m; m + l; o * i; n - l
i = j; i <> j; i < j; i <= l; i > d; l >= d; d = e; d <> e; d < e; d <= e; d > e; d >= e; d <=> e; i <=> j
m = n; m < d; n >= l; o > i; s = u; s < u; s >= u; b = c; b < c; ts < tu; dt = du; dt < ts; ts >= dt; iv < jv
s <=> u; b AND c; b OR c; NOT b; b AND NOT c OR i > 0; b IS NULL; b IS TRUE; b IS NOT FALSE; i IS NOT NULL
i IN (1, 2, j); d IN (e, 1, NULL); s IN ('', u); i IN (NULL, 0); i BETWEEN j AND 10; s IS DISTINCT FROM u
CASE WHEN b THEN i WHEN c THEN l ELSE d END; CASE i WHEN 0 THEN 'zero' WHEN j THEN s END
CASE WHEN i > 0 THEN m ELSE l END; if(b, i, d); coalesce(i, l, m); coalesce(s, u, ''); ifnull(m, n)
nvl(i, d); nvl2(s, i, l); nullif(i, j); nullif(d, i); nullif(s, ''); greatest(i, j, l); least(d, e, i)
greatest(s, u); least(m, n, o); greatest(ts, dt); isnull(s); isnotnull(d); isnan(d); isnan(i)
CAST(i AS BIGINT); CAST(l AS INT); CAST(d AS INT); CAST(d AS BIGINT); CAST(m AS BIGINT)
CAST(i AS DOUBLE); CAST(l AS DOUBLE); CAST(n AS DOUBLE); CAST(m AS DOUBLE); CAST(d AS DECIMAL(20, 5))
CAST(d AS DECIMAL(38, 10)); CAST(n AS DECIMAL(10, 3)); CAST(m AS DECIMAL(5, 1)); CAST(l AS DECIMAL(10, 0))
CAST(i AS DECIMAL(12, 2)); CAST(b AS INT); CAST(b AS DOUBLE); CAST(b AS DECIMAL(3, 1)); CAST(i AS BOOLEAN)
CAST(d AS BOOLEAN); CAST(m AS BOOLEAN); CAST(i AS STRING); CAST(l AS STRING); CAST(d AS STRING)
CAST(m AS STRING); CAST(n AS STRING); CAST(b AS STRING); CAST(ts AS STRING); CAST(dt AS STRING)
CAST(iv AS STRING); CAST(mo AS STRING); CAST(ts AS DATE); CAST(dt AS TIMESTAMP); CAST(ts AS BIGINT)
CAST(ts AS INT); CAST(ts AS DOUBLE); CAST(ts AS DECIMAL(20, 6)); CAST(ts AS DECIMAL(16, 3))
CAST(i AS TIMESTAMP); CAST(m AS TIMESTAMP); CAST(n % 1000000 AS TIMESTAMP); CAST(d / 1000000 AS TIMESTAMP)
TRY_CAST(w AS INT); TRY_CAST(w AS BIGINT); TRY_CAST(w AS DOUBLE); TRY_CAST(w AS DECIMAL(10, 2))
TRY_CAST(w AS BOOLEAN); TRY_CAST(w AS DATE); TRY_CAST(w AS TIMESTAMP); CAST(w AS INT); CAST(w AS DOUBLE)
CAST(w AS DECIMAL(8, 1)); CAST(w AS BOOLEAN); CAST(w AS DATE); CAST(w AS TIMESTAMP); TRY_CAST(l AS INT)
CAST(CAST(s AS BINARY) AS STRING); CAST(s AS BINARY) = CAST(u AS BINARY)
ts + iv; ts - iv; iv + ts; dt + iv; dt - iv; ts + mo; ts - mo; mo + ts; dt + mo; dt - mo; dt + i % 1000
dt - i % 1000; i % 1000 + dt; ts - tu; dt - du; ts - dt; iv + jv; iv - jv; -iv; -mo; mo + mo; iv * i; i * iv
iv * d; iv * m; iv / i; iv / d; iv / m; iv / l; ts + INTERVAL '2' HOURS; dt + INTERVAL '1' MONTH
abs(i); abs(l); abs(d); abs(m); acos(d); acos(d / 1000); asin(i); asin(d / 1000); atan(d); atan2(d, e)
atan2(i, j); cbrt(d); cos(d); cosh(d); cosh(d / 1000); degrees(d); exp(d); exp(d / 1000); ln(d); ln(m)
log(d); log(d, e); log(2, l); log10(d); log10(i); log2(d); pow(d, e); pow(d, i % 5); pow(i, d / 1000)
power(m, 2); power(d, d - d); radians(d); sin(d); sinh(d); sinh(d / 1000); sqrt(d); sqrt(i); tan(d)
tanh(d); tanh(d / 1000); sign(d); sign(i); sign(m); sign(n)
ceil(d); ceil(i); ceil(l); ceil(m); ceil(n); ceil(o); ceiling(m); floor(d); floor(i); floor(m); floor(n)
round(d); round(d, 2); round(d, -2); round(i); round(i, -1); round(i, -9); round(l, -3); round(m)
round(m, 1); round(m, 5); round(m, -1); round(m, -9); round(n, 3); round(n, 18); round(o, -2); round(d / 3, 5)
mod(i, j); mod(m, o); mod(d, l)
pmod(i, j); pmod(l, k); pmod(d, e); pmod(m, o); pmod(n, q); pmod(i, d); shiftleft(i, j); shiftleft(l, i)
shiftright(i, j); shiftright(l, j); bit_count(i); bit_count(l)
ascii(s); char_length(s); chr(i % 300); chr(l); concat(s, u); concat(s, 'x', u); s || u
concat_ws(s, u, w, 'x')
concat_ws(',', u); contains(s, u); contains(s, 'a'); crc32(s); endswith(s, u); endswith(s, 'b'); initcap(s)
initcap(w); instr(s, u); instr(s, 'a'); left(s, i % 5); left(w, l % 5); length(s); levenshtein(s, u)
locate(u, s); locate('a', s); locate('a', s, j % 4); locate(u, s, 2); lower(s); lpad(s, i % 9); ltrim(w)
lpad(s, i % 9, u); md5(s); repeat(s, i % 4); repeat(u, 2); replace(s, 'a', u); replace(s, u); reverse(s)
right(s, i % 5); rpad(s, j % 9); rpad(s, j % 9, u); rtrim(w); sha1(s); sha2(s, 256); sha2(s, i % 600)
sha2(s, 0); sha2(s, 384); split_part(s, 'a', 1); split_part(s, 'b', -1); split_part(s, u, i % 3)
startswith(s, u); startswith(s, 'a'); substr(s, i % 5); substr(s, i % 5, j % 4); substring(s, 2)
unhex(md5(s)); unhex(s); substring(s, -2, 1); substring_index(s, 'a', i % 3); substring_index(s, 'ab', -1)
substring_index(s, u, j % 3)
translate(s, 'ab', 'x'); translate(s, u, w); trim(w); upper(s)
s LIKE 'a%'; s LIKE '%b_'; s LIKE u; s LIKE '_'; s LIKE '%'; s LIKE 'a!%%' ESCAPE '!'; s LIKE '\\%%'
s ILIKE 'A%'
s ILIKE u; s NOT LIKE '%a%'; s RLIKE 'a+b'; s RLIKE '^.$'; s RLIKE '^\\w+$'; s RLIKE '(?i)^A'; s RLIKE '\\s'
s RLIKE '[^a-c\\d]'; s RLIKE '\\p{Upper}'; s RLIKE '\\Qa.\\E'; regexp_like(s, 'b$'); regexp_like(s, '\\bab')
regexp_extract(s, '(a+)(b*)', 2); regexp_extract(s, '([a-z])'); regexp_extract(w, '(\\d+)[-:](\\d+)', 0)
regexp_extract(s, '(?<one>a)|b', 1); regexp_replace(s, 'a', 'x'); regexp_replace(w, '\\d*', '-')
regexp_replace(w, '(\\d)(\\d)', '$2$1'); regexp_replace(s, '.', '\\$'); regexp_replace(w, '\\s+|$', '_')
regexp_replace(w, '(?<y>\\d{4})-', '${y}/'); regexp_replace(s, '[ab]{2,}?', '<$0>')
add_months(ts, i % 50); add_months(dt, j % 50); add_months(dt, l % 9); date_add(dt, i % 999)
date_add(ts, j % 9)
date_diff(ts, du); date_diff(dt, du); datediff(ts, tu); date_sub(dt, i % 999); day(ts); day(dt)
dayofmonth(dt)
dayofweek(ts); dayofweek(dt); dayofyear(dt); hour(ts); hour(dt); last_day(dt); last_day(ts); minute(ts)
month(ts); month(dt); quarter(dt); second(ts); weekday(dt); weekday(ts); weekofyear(dt); year(ts); year(dt)
EXTRACT(WEEK FROM ts); EXTRACT(DOW FROM dt); unix_micros(ts); unix_millis(ts); unix_seconds(ts)
date_trunc('year', ts); date_trunc('QUARTER', dt); date_trunc('mon', ts); date_trunc('week', ts)
date_trunc('dd', ts); date_trunc('HOUR', ts); date_trunc('minute', ts); date_trunc('second', ts)
date_trunc('MILLISECOND', ts); date_trunc('microsecond', ts); date_trunc(s, dt)
date_trunc(concat('century', ''), ts)
trunc(dt, 'yy'); trunc(ts, 'quarter'); trunc(dt, 'MM'); trunc(dt, 'week'); trunc(dt, s)
trunc(dt, concat('day', ''))
date_format(ts, 'yyyy-MM-dd HH:mm:ss.SSS'); date_format(dt, 'd/M/yy'); date_format(ts, 'y D DDD Q QQ L LL')
date_format(ts, 'EEE, EEEE E MMM MMMM LLL'); date_format(ts, 'h hh H a m s S SSSSSS'); from_unixtime(i)
from_unixtime(l % 100000000000); from_unixtime(i, 'yyyyMMdd, HHmm'); make_date(i % 3000, j % 13, i % 32)
make_timestamp(2000 + i % 90, 1, 1 + j % 28, i % 24, j % 60, m % 60); make_timestamp(i, j, 1, 2, 3, d % 60)
make_timestamp(2024, 2, 29, 23, 59, i % 70); timestamp_micros(l % 100000000000000000); timestamp_micros(i)
timestamp_millis(l % 100000000000000); timestamp_seconds(i); timestamp_seconds(m)
timestamp_seconds(d % 100000)
timestamp_seconds(n % 1000); to_date(w); to_timestamp(w); to_date(w, 'yyyy-MM-dd')
to_timestamp(w, 'd/M/yyyy'); unix_timestamp(ts); unix_timestamp(dt); unix_timestamp(w)
unix_timestamp(w, 'd/M/yyyy')
to_timestamp(w, 'yyyy-MM-dd HH:mm:ss.SSS'); to_timestamp(w, 'MMM d, yyyy h:mm a'); to_date(w, 'yyyyMMdd')
get_json_object(concat('{"a":', CAST(i AS STRING), ',"b":[', CAST(d AS STRING), ',true]}'), '$.a')
get_json_object(concat('{"a":', CAST(i AS STRING), ',"b":[', CAST(d AS STRING), ',true]}'), '$.b[0]')
get_json_object(concat('{"a":', CAST(i AS STRING), ',"b":[', CAST(d AS STRING), ',true]}'), '$.b')
get_json_object(concat('{"a b":{"c":"', s, '","c":2},"n":null}'), '$')
get_json_object(concat('{"a b":{"c":"', s, '","c":2},"n":null}'), '$.a b.c')
get_json_object(concat('{"a":{"c":"', s, '"}} tail'), '$.a'); get_json_object('{"n":null}', '$.n')
get_json_object('[1,[2,{"x":1.10}],3e2]', '$[1][1].x'); get_json_object('[1,[2,3],3e2]', '$[2]')
get_json_object(s, '$'); get_json_object(w, '$'); get_json_object('{"a":1}', '$.b')
hash(i); hash(l); hash(d); hash(m); hash(n); hash(s); hash(b); hash(ts); hash(dt); hash(iv); hash(mo)
hash(i, s, d); hash(NULL, l); hash(CAST(s AS BINARY)); hash(repeat(s, 20)); xxhash64(i); xxhash64(l)
xxhash64(d); xxhash64(m); xxhash64(n); xxhash64(s); xxhash64(b); xxhash64(ts); xxhash64(dt); xxhash64(iv)
xxhash64(mo); xxhash64(s, i, w); xxhash64(repeat(s, 20)); xxhash64(CAST(u AS BINARY), NULL)
"""

# Intended differences from Spark: an exact value, or an error in place of a wrong value.
DEVIATIONS = {
    "-n": "Spark rounds a negated decimal to 34 digits",
    "abs(n)": "Spark rounds the absolute value of a decimal to 34 digits",
    "CAST(n AS INT)": "Spark goes through a double: 9.999999999999999999 becomes 10",
    "CAST(l AS TIMESTAMP)": "Spark gives the last timestamp there is for all later ones",
    "CAST(n AS TIMESTAMP)": "Spark wraps around",
    "n div q": "Spark wraps around",
    "timestamp_seconds(d)": "Spark gives the last timestamp there is for all later ones",
    "regexp_replace(s, 'a*', '-')": "Java steps through the halves of a character beyond 16 bits",
}

TEXTS = (
    "",
    "a",
    "ab",
    "aab",
    "abAB",
    "b",
    "A b",
    "ba",
    "é",
    "ÉCOLE",
    "ß",
    "日本",
    "a𝄞b",
    "a.b",
    "a%b",
    " a ",
    "x\ny",
)
READABLE = (
    *(
        "12",
        " -7 ",
        "+3",
        "2147483648",
        "9223372036854775808",
        "1.25",
        "1e3",
        "-.5",
        "5.",
        "1d",
        "NaN",
        "inf",
    ),
    *("-Infinity", "true", "F", "yes", "0", "", " ", "abc", "1_0", "٣", "0x10", "99999999.95", "-0", "1e400"),
    *("2024-02-29", "2023-02-29", "2024-2-9", "2024-1", "1999", "20240229", "2024-02-29x", "-0044-03-15"),
    *("2024-02-29 12:34:56.789", "2024-02-29T12:34:56Z", "2024-02-29 1:2:3", "2024-02-29 12:34:56+02:00"),
    *("2024-02-29 12", "2024-02-29 24:00:00", "2024-02-29 12:34:56.1234567", "2024-02-29 00:00 -0330"),
    *("29/2/2024", "3/12/1999", "Feb 29, 2024 1:05 PM", "mar 3, 1970 12:00 am", "2024-02-29 x"),
)


def rows(seed: int) -> list[tuple[object, ...]]:
    """Return rows with edge values and random values; all columns have NULLs."""
    rng = random.Random(seed)
    made = [tuple(_value(column, index, rng) for column in SCHEMA) for index in range(ROWS)]
    return [*made, (None,) * len(SCHEMA)]


def _value(column: Column, index: int, rng: random.Random) -> object:
    if column.name == "w" and index < len(READABLE):
        return READABLE[index]
    if rng.random() < 0.06:
        return None
    kind = column.type.kind
    if kind is Kind.DECIMAL:
        assert column.type.precision is not None and column.type.scale is not None
        digits = rng.choice((1, 3, column.type.precision // 2, column.type.precision))
        number = rng.choice((0, 1, -1, 10**digits - 1, rng.randrange(10**digits), -rng.randrange(10**digits)))
        return Decimal(f"{number}E-{column.type.scale}")
    if column.name == "w":
        return rng.choice(READABLE)
    return _CHOICES[kind](rng)


def _double(rng: random.Random) -> float:
    edges = (0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 1e-3, 1e7, 0.5, -2.5)
    whole = (float(rng.randrange(-9, 10)), float(2**63), -float(2**31))
    return rng.choice((*edges, *whole, *(rng.uniform(-1000, 1000) for _ in range(12)), rng.gauss(0, 1e12)))


def _whole(bits: int, rng: random.Random) -> int:
    edges = (0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 25, -25)
    return rng.choice(
        (*edges, *(rng.randrange(-(2**n), 2**n) for n in (3, 4, 5, 7, 10, bits // 2, bits - 1)))
    )


_DAY_US = 86_400_000_000
_CHOICES = {
    Kind.INT: lambda rng: _whole(32, rng),
    Kind.BIGINT: lambda rng: _whole(64, rng),
    Kind.DOUBLE: _double,
    Kind.VARCHAR: lambda rng: rng.choice(TEXTS),
    Kind.BOOLEAN: lambda rng: rng.random() < 0.5,
    Kind.TIMESTAMP: lambda rng: rng.choice(
        (0, -1, 19_782 * _DAY_US, 999_999, rng.randrange(-(10**16), 10**16), rng.randrange(10**15))
    ),
    Kind.DATE: lambda rng: rng.choice((0, -1, 19_782, 11_016, -719_528, rng.randrange(-50_000, 90_000))),
    Kind.INTERVAL: lambda rng: rng.choice((0, 1, -1, 3, 90_000_000, rng.randrange(-(10**13), 10**13))),
    Kind.MONTHS: lambda rng: rng.choice((0, 1, -1, 12, rng.randrange(-500, 500))),
}
