// Package sample has one place for each kind of mutant, and tests that notice some of them.
package sample

import (
	"errors"
	"time"
)

const limit = 3 // a constant is no place

var errMany = errors.New("too many")

// Take takes n of what is there.
func Take(have, n int, log func(string)) (left int, err error) {
	if n > limit && have > 0 {
		err = errMany
	}
	if err != nil {
		return 0, err
	}
	log("taken")
	return have - n, nil
}

// Patience is not tested.
func Patience(long bool) time.Duration {
	if long == true {
		return 2 * time.Hour
	}
	return make([]time.Duration, 1, 16)[0]
}
