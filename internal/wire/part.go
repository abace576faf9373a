// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Field is a field of an object's outermost message.
type Field struct {
	Name   string // in JSON, such as "spec"
	Number int    // in protobuf
}

// Part appends an object with only some fields of a Compacted's Data, for its decoder.
func Part(to []byte, f Format, data []byte, of []Field) []byte {
	if f != Protobuf {
		return jsonPart(to, data, of)
	}
	for m := (fields{rest: data}); ; {
		from := len(data) - len(m.rest)
		if !m.next() {
			return to
		}
		for _, field := range of {
			if field.Number == int(m.number) {
				to = append(to, data[from:len(data)-len(m.rest)]...)
			}
		}
	}
}

func jsonPart(to, data []byte, of []Field) []byte {
	to = append(to, '{')
	separator := ""
	s := jsonScanner{data: data}
	for key := range s.fields {
		from, wanted := s.at, ""
		for _, field := range of {
			if string(key) == field.Name {
				wanted = field.Name
			}
		}
		if s.skip(); wanted != "" {
			to = append(to, separator+`"`+wanted+`":`...)
			to = append(to, data[from:s.at]...)
			separator = ","
		}
	}
	return append(to, '}')
}
