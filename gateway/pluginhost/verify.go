package pluginhost

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// image is a program that has been verified, ready to be executed as often as
// needed: nobody can change it any more.
type image struct {
	file *os.File // nil = this binary itself
	path string   // what is executed
	name string   // for people
	// copied: path is a copy to be removed.
	copied bool
}

func (i *image) close() {
	if i.file != nil {
		_ = i.file.Close()
	}
	if i.copied {
		_ = os.Remove(i.path)
	}
}

// verify opens a program, checks that nobody but its owner can have changed it,
// and copies it to where nobody can. The bytes that are compared with the pinned
// checksum are those that will be executed. between, for tests, is called when
// the file has been opened and checked but not read.
func verify(path, sum string, between func()) (*image, error) {
	want, err := hex.DecodeString(sum)
	if err != nil || len(want) != sha256.Size {
		return nil, errorf(CodeChecksum, "no SHA-256 is pinned for %s", path)
	}
	file, err := openTrusted(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if between != nil {
		between()
	}
	h := sha256.New()
	img, err := keep(file, path, h)
	if err != nil {
		return nil, wrap(CodeNotFound, err, "the program "+path+" cannot be read")
	}
	if subtle.ConstantTimeCompare(h.Sum(nil), want) != 1 {
		img.close()
		return nil, errorf(CodeChecksum, "the program %s has not the pinned checksum; it is %s", path, hex.EncodeToString(h.Sum(nil)))
	}
	return img, nil
}

// Checksum gives the SHA-256 of a program, in hex, if it may be used as a
// plugin.
func Checksum(path string) (string, error) {
	file, err := openTrusted(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return "", wrap(CodeNotFound, err, "the program "+path+" cannot be read")
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// openTrusted opens a program that only root and this process's user may write,
// in folders of which the same holds.
func openTrusted(path string) (*os.File, error) {
	if !filepath.IsAbs(path) {
		return nil, errorf(CodeNotFound, "the program's path %q is not absolute", path)
	}
	// Links on the way are followed once; what is checked is where they lead.
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return nil, wrap(CodeNotFound, bare(err), "the folder of "+path+" cannot be opened")
	}
	for d := dir; ; d = filepath.Dir(d) {
		info, err := os.Lstat(d)
		if err != nil {
			return nil, wrap(CodeNotFound, bare(err), "the folder "+d+" cannot be looked at")
		}
		// In a sticky folder above, nobody can replace what is another's.
		if sticky := info.Mode()&fs.ModeSticky != 0 && d != dir; !sticky && others(info) {
			return nil, errorf(CodeWritable, "others may write to the folder %s", d)
		}
		if d == filepath.Dir(d) {
			break
		}
	}
	file, err := os.OpenFile(filepath.Join(dir, filepath.Base(path)), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, errorf(CodeSymlink, "%s is a link; name the program itself", path)
	}
	if err != nil {
		return nil, wrap(CodeNotFound, bare(err), "the program "+path+" cannot be opened")
	}
	info, err := file.Stat()
	switch {
	case err != nil:
		err = wrap(CodeNotFound, bare(err), "the program "+path+" cannot be looked at")
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
		err = errorf(CodeNotFound, "%s is no program", path)
	case others(info):
		err = errorf(CodeWritable, "others may write the program %s", path)
	case script(file):
		// Its interpreter would be handed a file that is closed by then.
		err = errorf(CodeNotFound, "%s is a script: the path is its interpreter's, and the script is among the args", path)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// script says whether a file is run by the interpreter that its first line names.
func script(file *os.File) bool {
	var first [2]byte
	n, _ := file.ReadAt(first[:], 0)
	return n == 2 && string(first[:]) == "#!"
}

// others says whether anybody but root and this process's user can write.
func others(info fs.FileInfo) bool {
	if info.Mode().Perm()&0o022 != 0 {
		return true
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid != 0 && int(st.Uid) != os.Geteuid()
}

// bare drops the path of a file error: the text around it says it.
func bare(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
