// Package parleytest tests agents with no key, no network and no luck.
package parleytest
