package scene

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/berthlb/berth/e2e/lab"
)

// Sort is how a scene is run.
type Sort string

// The sorts of scenes, in the order they are run.
const (
	Quiet Sort = "quiet" // shares one lab with others, up to three at a time
	Loud  Sort = "loud"  // stops things: has a lab of its own, one at a time
	Timed Sort = "timed" // measures: as loud, and alone on the machine
)

// Sorts answers all sorts in the order they are run.
func Sorts() []Sort { return []Sort{Quiet, Loud, Timed} }

// Header is what the first line of a scene says:
//
//	# loud [nodes=3 proxy=iptables berth kubelet]: pods are reached through NodePort
type Header struct {
	Sort  Sort
	About string
	Nodes int           // 3 unless said otherwise
	Proxy lab.ProxyMode // nftables unless said otherwise
	Berth bool          // Berth is installed, one controller and every node's speaker run when the scene begins
	// Kubelet gives the nodes a real kubelet and containers; Berth is then installed by its chart.
	Kubelet bool
	Plain   bool // those nodes do without what some machines refuse
}

const usualNodes = 3

// ParseHeader reads the first line of a scene.
func ParseHeader(line string) (Header, error) {
	head, about, found := strings.Cut(strings.TrimSpace(line), ": ")
	head, isComment := strings.CutPrefix(head, "# ")
	if !found || !isComment {
		return Header{}, fmt.Errorf("read %q: the first line of a scene is `# SORT [OPTIONS]: SENTENCE`", line)
	}
	word, options, _ := strings.Cut(head, " ")
	h := Header{Sort: Sort(word), About: about, Nodes: usualNodes, Proxy: lab.NFTables, Berth: Sort(word) == Quiet}
	if !slices.Contains(Sorts(), h.Sort) {
		return Header{}, fmt.Errorf("read %q: the sort is one of %v", line, Sorts())
	}
	options = strings.TrimSuffix(strings.TrimPrefix(options, "["), "]")
	if options != "" && h.Sort == Quiet {
		return Header{}, fmt.Errorf("read %q: quiet scenes share one lab, so none can have options", line)
	}
	for option := range strings.FieldsSeq(options) {
		if err := h.set(option); err != nil {
			return Header{}, fmt.Errorf("read %q: %w", line, err)
		}
	}
	return h, nil
}

func (h *Header) set(option string) (err error) {
	key, value, _ := strings.Cut(option, "=")
	switch key {
	case "nodes":
		h.Nodes, err = strconv.Atoi(value)
	case "proxy":
		h.Proxy = lab.ProxyMode(value)
		if h.Proxy != lab.NFTables && h.Proxy != lab.IPTables {
			err = fmt.Errorf("the proxy is %s or %s", lab.NFTables, lab.IPTables)
		}
	case "berth":
		h.Berth = true
	case "kubelet":
		h.Kubelet, h.Plain = true, value == "plain"
		if value != "" && !h.Plain {
			err = errors.New("kubelet is plain or nothing")
		}
	default:
		err = fmt.Errorf("there is no option %s", key)
	}
	return err
}

// File is one scene.
type File struct {
	Name   string // of the file, without its ending
	Path   string
	Header Header
	Text   string
}

// UsesBerth tells whether the scene needs Berth's programs.
func (f File) UsesBerth() bool {
	return f.Header.Berth || f.Header.Kubelet || strings.Contains(f.Text, "\nberth ")
}

// Read reads the scenes of a folder whose names match; an empty pattern is all. A pattern is a whole name or a part of
// names, or several of them with commas between.
func Read(dir, pattern string) ([]File, error) {
	names, err := sceneNames(dir)
	if err != nil {
		return nil, err
	}
	var chosen []string
	for part := range strings.SplitSeq(pattern, ",") {
		matching := []string{part}
		if !slices.Contains(names, part) {
			matching = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.Contains(name, part) })
		}
		if len(matching) == 0 {
			return nil, fmt.Errorf("there is no scene %q in %s", part, dir)
		}
		chosen = append(chosen, matching...)
	}
	slices.Sort(chosen)
	var files []File
	for _, name := range slices.Compact(chosen) {
		file, err := readFile(name, dir+"/"+name+".txtar")
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// sceneNames are the names of all scenes of a folder, sorted.
func sceneNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the scenes: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if name, found := strings.CutSuffix(entry.Name(), ".txtar"); found {
			names = append(names, name)
		}
	}
	return names, nil
}

func readFile(name, path string) (File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return File{}, fmt.Errorf("read scene %s: %w", name, err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	header, err := ParseHeader(first)
	if err != nil {
		return File{}, fmt.Errorf("scene %s: %w", name, err)
	}
	return File{Name: name, Path: path, Header: header, Text: string(text)}, nil
}
