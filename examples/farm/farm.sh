#!/bin/sh
# A farm of shell tasks, a line each: rank r of n runs lines r+1, r+1+n, r+1+2n … and
# exits with how many of them failed, 100 at most (an exit status has eight bits: 256 failures would look like none).
#
#   yod -sz 8 -label ./farm.sh tasks
tasks=${1:?which file has the tasks, a line each?}
failed=0
number=0
while IFS= read -r task || [ -n "$task" ]; do
  number=$((number + 1))
  [ $(((number - 1) % YOD_SIZE)) -eq "$YOD_RANK" ] || continue
  if sh -c "$task" </dev/null; then
    echo "task $number on $YOD_NODE: done"
  else
    echo "task $number on $YOD_NODE: failed with $?" >&2
    failed=$((failed + 1))
  fi
done <"$tasks"
[ "$failed" -le 100 ] || failed=100
exit "$failed"
