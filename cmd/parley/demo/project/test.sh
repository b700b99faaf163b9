#!/bin/sh
# Tests split.sh: the bill, the people, what each of them pays.
all=0 good=0
check() {
	all=$((all + 1))
	got=$(sh split.sh "$1" "$2")
	if [ "$got" = "$3" ]; then
		good=$((good + 1))
	else
		echo "FAIL: $1 cents among $2 people is $3 each, got $got"
	fi
}
check 3000 3 1000
check 1000 3 334
check 5 7 1
echo "$good of $all tests pass" | tee -a test.log
[ $good = $all ]
