# SPDX-License-Identifier: MIT
# fish completion for ctxbank: 'ctxbank complete' knows what may stand where the cursor is.
function __ctxbank_complete
    set -l words (commandline -opc)
    set -l cur (commandline -ct)
    set -l lines (eval $words[1] complete -- (string escape -- $words[2..-1] "$cur") 2>/dev/null)
    set -l first (string split ' ' -- $lines[1])
    switch "$first[1]"
        case words
            string join \n -- $lines[2..-1]
        case folders files
            set -l head (string sub -l $first[2] -- $cur)
            set -l typed (string sub -s (math $first[2] + 1) -- $cur)
            set -l paths
            if test "$first[1]" = folders
                set paths (__fish_complete_directories $typed)
            else
                set paths (__fish_complete_path $typed)
            end
            if set -q first[3]
                set paths (string match -r '.*(?:/|'(string escape --style=regex -- $first[3])')(?:\t.*)?$' -- $paths)
            end
            string replace -r '^' -- "$head" $paths
    end
end
complete -c ctxbank -f -a '(__ctxbank_complete)'
