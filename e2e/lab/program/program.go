// Package program holds what the containers of a lab run. Bare nodes have no images: there a container's image name
// selects one of these programs, which are this same binary called by another name. Nodes with real containers have
// images of the same names, which hold them (cmd/pod).
package program

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// registry is where image names of the lab begin.
const registry = "berth.lab/"

func programs() map[string]func(args []string) error {
	return map[string]func([]string) error{"web": web, "pause": pause}
}

// ForImage answers the name to call the binary by for a container image such as berth.lab/web:v2, false if there is
// no such image.
func ForImage(image string) (name string, ok bool) {
	name, found := strings.CutPrefix(image, registry)
	name, _, _ = strings.Cut(name, ":")
	_, known := programs()[name]
	return "lab-" + name, found && known
}

// Dispatch runs the program this binary was called as, if it was, and ends the process.
func Dispatch() {
	name, found := strings.CutPrefix(filepath.Base(os.Args[0]), "lab-")
	run, known := programs()[name]
	if !found || !known {
		return
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
