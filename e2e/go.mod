module github.com/berthlb/berth/e2e

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/vishvananda/netlink v1.3.1
	github.com/vishvananda/netns v0.0.5
	golang.org/x/sys v0.50.0
)

replace github.com/berthlb/berth => ../
