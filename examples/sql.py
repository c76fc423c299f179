"""SQL beside Python: sales from files are filtered by Spark itself, and added up by country in Python.

    mkdir -p sales
    echo '{"user": "ada", "country": "fr", "amount": 30.0}' > sales/1.json
    echo '{"user": "bob", "country": "de", "amount": 4.0}' > sales/2.json
    penstock run examples/sql.py --until drained
    penstock log read totals

``large`` and ``by_country`` are one plan of Spark, which also reads the files and writes those in
``large-sales``: no row of them passes through Python. What goes to ``amount`` does, as columns.
"""

import penstock as ps

job = ps.Job("sales")
files = ps.FileSource("sales", "json", schema="user string, country string, amount double")
sales = job.source("sales", files)
large = job.task(
    "large", ps.Sql("SELECT user, upper(country) AS country, amount FROM input WHERE amount > 9")
)
by_country = job.task("by_country", ps.Sql("SELECT country AS _key, amount FROM input"))
amount = job.task("amount", lambda r: r.value["amount"])
total = job.task("total", ps.Sum())

sales >> large >> job.sink("large-sales", ps.FileSink("large-sales"))
large >> by_country >> amount >> total >> job.sink("totals", ps.LogSink("totals"))
