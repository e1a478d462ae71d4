package build

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// Key answers the SHA-256, as hexadecimal text, of a module's files (their paths and contents, in the order of the paths)
// and of the text that names the platform. Tests are no part of what is built. Each part is preceded by its length, so no
// two lists of parts read the same.
func Key(module fs.FS, platform string) (string, error) {
	hash := sha256.New()
	part := func(text []byte) {
		fmt.Fprintf(hash, "%d:", len(text))
		hash.Write(text)
	}
	part([]byte(platform))
	err := fs.WalkDir(module, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := module.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		text, err := io.ReadAll(file)
		if err != nil {
			return err
		}
		part([]byte(path))
		part(text)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("read the module to build: %w", err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// joinKeys makes one key of those of several modules; that of one alone stays as it is.
func joinKeys(keys []string) string {
	if len(keys) == 1 {
		return keys[0]
	}
	sum := sha256.Sum256([]byte(strings.Join(keys, "\n")))
	return hex.EncodeToString(sum[:])
}
