// Package audit reads the API server's audit log: who wrote what, seen from outside the writer.
package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// Policy is the audit policy the lab's API server runs with: every write of every user, without the objects.
const Policy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: None
  verbs: [get, list, watch]
- level: Metadata
`

// Write is one write request that was answered.
type Write struct {
	Time      time.Time // when the request arrived, on the machine's clock
	User      string
	Verb      string // create, update, patch, delete, deletecollection
	Resource  string // "services", or "services/status"
	Namespace string // empty for cluster-scoped objects
	Name      string
	Code      int // HTTP status of the answer
	Agent     string
	From      string // address that the request came from
}

// String prints a write as the scenes compare it.
func (w Write) String() string {
	name := w.Name
	if w.Namespace != "" {
		name = w.Namespace + "/" + w.Name
	}
	return fmt.Sprintf("%s %s %s %d %s", w.Verb, w.Resource, name, w.Code, w.User)
}

// event is the part of an audit.k8s.io/v1 Event that is read.
type event struct {
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	User  struct {
		Username string `json:"username"`
	} `json:"user"`
	ImpersonatedUser *struct {
		Username string `json:"username"`
	} `json:"impersonatedUser"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	UserAgent                string    `json:"userAgent"`
	SourceIPs                []string  `json:"sourceIPs"`
	RequestReceivedTimestamp time.Time `json:"requestReceivedTimestamp"`
}

// Parse reads an audit log. A last line that is cut off, as it is while the server writes it, is left out; any other
// line that cannot be read is an error.
func Parse(log io.Reader) ([]Write, error) {
	var writes []Write
	reader := bufio.NewReader(log)
	for number := 1; ; number++ {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return writes, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read line %d of the audit log: %w", number, err)
		}
		if e.Stage == "ResponseComplete" || e.Stage == "Panic" {
			writes = append(writes, e.write())
		}
	}
}

func (e event) write() Write {
	w := Write{
		Time: e.RequestReceivedTimestamp, User: e.User.Username, Verb: e.Verb, Resource: e.ObjectRef.Resource,
		Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name, Code: e.ResponseStatus.Code, Agent: e.UserAgent,
	}
	if e.ImpersonatedUser != nil {
		w.User = e.ImpersonatedUser.Username
	}
	if len(e.SourceIPs) > 0 {
		w.From = e.SourceIPs[0]
	}
	if e.ObjectRef.Subresource != "" {
		w.Resource += "/" + e.ObjectRef.Subresource
	}
	return w
}

// ParseFile reads an audit log from a file.
func ParseFile(path string) ([]Write, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	defer file.Close()
	return Parse(file)
}

// Filter says which writes are wanted; an empty field wants all.
type Filter struct {
	User  string // the whole name, or what follows its last colon
	From  string // the address that the request came from
	Since time.Time
}

// Select answers the writes that the filter wants, in the order of the log.
func Select(writes []Write, filter Filter) []Write {
	var wanted []Write
	for _, w := range writes {
		if w.Time.Before(filter.Since) || !isUser(w.User, filter.User) || (filter.From != "" && w.From != filter.From) {
			continue
		}
		wanted = append(wanted, w)
	}
	return wanted
}

func isUser(user, wanted string) bool {
	return wanted == "" || user == wanted || strings.HasSuffix(user, ":"+wanted)
}
