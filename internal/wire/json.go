// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire

func readJSON(data []byte, o Options) (Metadata, bool) {
	s := jsonReader{Options: o, jsonScanner: jsonScanner{data: data}}
	s.want('{', "an object")
	obj := s.root()
	return obj, s.err == ""
}

type jsonReader struct {
	Options
	jsonScanner
}

// root reads an object. The last of several fields with one name counts, as in encoding/json.
func (s *jsonReader) root() (obj Metadata) {
	for key := range s.fields {
		switch string(key) {
		case "apiVersion":
			obj.APIVersion = s.text()
		case "kind":
			obj.Kind = s.text()
		case "metadata":
			s.metadata(&obj)
			if s.Enough && obj.Stored() {
				return obj
			}
		case "status":
			obj.Status = s.text()
		case "details":
			obj.StatusName, obj.StatusUID = nil, nil
			for key := range s.fields {
				switch string(key) {
				case "name":
					obj.StatusName = s.text()
				case "uid":
					obj.StatusUID = s.text()
				default:
					s.skip()
				}
			}
		case "items", "rows":
			s.list(string(key) == "rows")
		case "deleteOptions":
			obj.DryRun, obj.Precondition = false, nil
			for key := range s.fields {
				s.deleteOption(&obj, key)
			}
		default:
			s.deleteOption(&obj, key)
		}
	}
	return obj
}

func (s *jsonReader) metadata(obj *Metadata) {
	*obj = Metadata{
		APIVersion: obj.APIVersion, Kind: obj.Kind, Status: obj.Status, StatusName: obj.StatusName, StatusUID: obj.StatusUID,
		DryRun: obj.DryRun, Precondition: obj.Precondition, Metadata: s.is('{'),
	}
	for key := range s.fields {
		switch string(key) {
		case "name":
			obj.Name = s.text()
		case "namespace":
			obj.Namespace = s.text()
		case "uid":
			obj.UID = s.text()
		case "resourceVersion":
			obj.ResourceVersion = s.text()
		case "generation":
			obj.Generation, _ = s.integer()
		case "deletionTimestamp":
			obj.Deleting = !s.is('n')
			s.skip()
		case "deletionGracePeriodSeconds":
			obj.Grace, _ = s.integer()
		case "finalizers":
			obj.Finalizers = s.notEmpty()
		default:
			s.skip()
		}
	}
	obj.Metadata = obj.Metadata && s.err == ""
}

func (s *jsonReader) deleteOption(obj *Metadata, key []byte) {
	switch string(key) {
	case "dryRun":
		obj.DryRun = s.notEmpty()
	case "preconditions":
		obj.Precondition = nil
		for key := range s.fields {
			if string(key) == "uid" {
				obj.Precondition = s.text()
			} else {
				s.skip()
			}
		}
	default:
		s.skip()
	}
}

func (s *jsonReader) list(rows bool) {
	if s.Items == nil {
		s.skip()
		return
	}
	for range s.elements {
		if !rows {
			s.item()
			continue
		}
		for key := range s.fields {
			if string(key) == "object" {
				s.item()
			} else {
				s.skip()
			}
		}
	}
}

func (s *jsonReader) item() {
	if !s.is('{') {
		s.skip()
		return
	}
	inner := jsonReader{jsonScanner: s.jsonScanner}
	obj := inner.root()
	if s.jsonScanner = inner.jsonScanner; s.err == "" {
		*s.Items = append(*s.Items, obj)
	}
}
