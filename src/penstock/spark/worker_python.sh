#!/bin/sh
# The Python of Spark's workers on this machine.
#
# Spark puts pyspark.zip first on their path. Python compiles what it imports from a zip file anew in each
# process, which takes most of a second; the package that is installed is the same, and compiled.
rest=$PYTHONPATH
kept=
while [ -n "$rest" ]; do
    place=${rest%%:*}
    case $place in
        */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip) ;;
        *) kept=$kept${kept:+:}$place ;;
    esac
    case $rest in
        *:*) rest=${rest#*:} ;;
        *) rest= ;;
    esac
done
export PYTHONPATH="$kept"
exec "$PENSTOCK_WORKER_PYTHON" "$@"
