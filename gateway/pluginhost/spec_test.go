package pluginhost

import (
	"strings"
	"testing"
)

// A slip of the pen is named as the file's author wrote it, and by no type of this program.
func TestAnUnknownMemberIsNamed(t *testing.T) {
	t.Parallel()
	_, err := Parse([]byte("transports:\n  pager:\n    pth: /opt/pager\n"))
	if err == nil || !strings.HasSuffix(err.Error(), "line 3: there is no member pth here") {
		t.Error(err)
	}
}
