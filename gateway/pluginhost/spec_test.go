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

func TestAValueOfAnotherTypeIsToldInWordsAndNotQuoted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"timeout: 5":         "line 3: a time with its unit, such as 30s, must stand here",
		"args: secret":       "line 3: a list must stand here",
		"env: [A=secret]":    "line 3: named members must stand here",
		"config: secret":     "line 3: named members must stand here",
		"in_process: secret": "line 3: true or false must stand here",
		"files: secret":      "line 3: a number must stand here",
		"path: [secret]":     "line 3: a text must stand here",
	} {
		_, err := Parse([]byte("transports:\n  pager:\n    " + text + "\n"))
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}
