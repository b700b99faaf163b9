// The tests of the console in a real browser, in a module of its own: who builds Parley
// links none of it. The module of Parley is the one of this tree, by way of go.work.
module github.com/parley-go/parley/console/testdata/browsertest

go 1.26.0

require (
	github.com/chromedp/cdproto v0.157.8
	github.com/chromedp/chromedp v0.21.0
)

require github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3 // indirect
