package pluginhost

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// footprint tells whether files, and what is in folders, have changed: by names,
// sizes and times, and not by what they hold. What cannot be looked at is a part of it.
func footprint(paths []string) [sha256.Size]byte {
	sum := sha256.New()
	for _, path := range paths {
		// What a link leads to is looked into, and where it leads counts.
		if target, err := filepath.EvalSymlinks(path); err == nil {
			path = target
		}
		_ = filepath.WalkDir(path, func(name string, _ fs.DirEntry, err error) error {
			fmt.Fprintf(sum, "%q %v", name, err)
			if err != nil {
				return nil
			}
			if st, err := os.Stat(name); err == nil { // of what a link leads to
				fmt.Fprintf(sum, " %d %d %v", st.Size(), st.ModTime().UnixNano(), st.Mode())
			}
			return nil
		})
	}
	return [sha256.Size]byte(sum.Sum(nil))
}
