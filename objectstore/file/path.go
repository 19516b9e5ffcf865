package file

import (
	"strings"
)

const (
	dirSuffix   = ".d"
	tempFolder  = ".tmp"
	maxFileName = 255 // bytes, of every common file system
)

// keyPath gives the path of a valid key below the root, slash-separated; "" if an element is too long for a file name once escaped.
//
// In an element "%" becomes "%25" and a leading "." becomes "%2E"; folders get ".d" appended; an object whose name would end in
// ".d" ends in "%2Ed" instead. So objects and folders never have the same name, nothing of ours is hidden (.tmp cannot be a key),
// and pathKey is the exact inverse.
func keyPath(key string) string {
	dir, name := splitKey(key)
	if dir == "" {
		return checkName(fileName(name))
	}
	d, f := dirPath(dir), checkName(fileName(name))
	if d == "" || f == "" {
		return ""
	}
	return d + "/" + f
}

// dirPath is keyPath for a folder: "l0/7f" gives "l0.d/7f.d".
func dirPath(dir string) string {
	var b strings.Builder
	b.Grow(len(dir) + 8)
	for i, elem := range strings.Split(dir, "/") {
		name := checkName(escape(elem) + dirSuffix)
		if name == "" {
			return ""
		}
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(name)
	}
	return b.String()
}

// splitKey cuts a key at its last slash: "l0/7f/x" gives "l0/7f" and "x", "x" gives "" and "x".
func splitKey(key string) (dir, name string) {
	if i := strings.LastIndexByte(key, '/'); i >= 0 {
		return key[:i], key[i+1:]
	}
	return "", key
}

func checkName(name string) string {
	if len(name) > maxFileName {
		return ""
	}
	return name
}

func escape(elem string) string {
	if strings.IndexByte(elem, '%') >= 0 {
		elem = strings.ReplaceAll(elem, "%", "%25")
	}
	if strings.HasPrefix(elem, ".") {
		elem = "%2E" + elem[1:]
	}
	return elem
}

// fileName is the file name of an object's last element.
func fileName(elem string) string {
	name := escape(elem)
	if cut, ok := strings.CutSuffix(name, dirSuffix); ok {
		name = cut + "%2Ed"
	}
	return name
}

// elementOf gives the element that a directory entry stands for; ok is false for names that no key has (they are not ours).
func elementOf(name string, isDir bool) (elem string, ok bool) {
	elem = name
	if isDir {
		if elem, ok = strings.CutSuffix(name, dirSuffix); !ok {
			return "", false
		}
	}
	if strings.IndexByte(elem, '%') >= 0 {
		elem = strings.ReplaceAll(elem, "%2E", ".")
		elem = strings.ReplaceAll(elem, "%25", "%")
	}
	// Only what the encoder makes is ours; re-encoding also refuses the sequences that decode but are never written.
	back := fileName(elem)
	if isDir {
		back = escape(elem) + dirSuffix
	}
	return elem, elem != "" && back == name
}
