package announce_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain adds the flag -update, which writes the goldens.
func TestMain(m *testing.M) {
	flag.Bool("update", false, "write the goldens in testdata")
	flag.Parse()
	os.Exit(m.Run())
}
